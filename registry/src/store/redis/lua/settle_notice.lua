-- Notes what became of the head of a queue of notices, if that is still this one.
-- KEYS: index, counts, due, since, queue, attempts, dead, deaths
-- ARGV: seq, webhook, id, when the head or the next notice is due, attempts or '' if it is gone, the
--   dead notice or '', its name, how many dead ones are kept
-- Returns the next notice, if the head is gone by this call.
local seq, webhook, id, due, attempts, dead, name = unpack(ARGV, 1, 7)
local head = redis.call('LINDEX', KEYS[5], 0)
if not head or head:match('^%d+') ~= seq then return false end
local next
if attempts ~= '' then
  redis.call('HSET', KEYS[6], id, attempts)
  redis.call('ZADD', KEYS[3], due, id)
else
  redis.call('LPOP', KEYS[5])
  redis.call('HDEL', KEYS[6], id)
  redis.call('HINCRBY', KEYS[2], webhook, -1)
  if dead ~= '' then bury(KEYS[7], KEYS[8], name, due, dead, ARGV[8]) end
  next = redis.call('LINDEX', KEYS[5], 0)
  if next then
    redis.call('ZADD', KEYS[3], due, id)
    redis.call('ZADD', KEYS[4], next:match('^%d+ (%d+) '), id)
  else
    redis.call('ZREM', KEYS[3], id)
    redis.call('ZREM', KEYS[4], id)
  end
end
reindex(KEYS[1], KEYS[3], webhook)
return next or false

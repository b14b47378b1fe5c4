-- Keeps an entry of the audit, if its conversation exists. Removes expired entries and, past the
-- maximum, those that expire first; both keys expire with the last entry.
-- KEYS: entries, expiries, conversation
-- ARGV: now, maximum number of entries, key, expiry, entry
-- Returns 1 if it is kept, else 0.
local now, max_entries, id, expiry, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('HEXISTS', KEYS[3], 'seq') == 0 then return 0 end
local function forget(ids)
  for _, old in ipairs(ids) do
    redis.call('HDEL', KEYS[1], old)
    redis.call('ZREM', KEYS[2], old)
  end
end
forget(redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE'))
redis.call('HSET', KEYS[1], id, entry)
redis.call('ZADD', KEYS[2], expiry, id)
forget(redis.call('ZRANGE', KEYS[2], 0, -1 - max_entries))
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
for i = 1, 2 do redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', last / 1000 + 1)) end
return 1

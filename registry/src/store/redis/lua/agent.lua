-- Makes a revision the newest of a name, or deletes the name.
-- KEYS: newest, revisions, outcomes, answers, expiries, decisions
-- ARGV: name, nonce, revision or '', definition; the answers
-- Returns 1 if the name was there, else 0; the same again for the same nonce.
local last = redis.call('HGET', KEYS[3], ARGV[1]) or ''
if last:sub(1, -3) == ARGV[2] then
  redis.call('HSET', KEYS[3], ARGV[1], last) -- a WAIT after it waits for the change too
  return tonumber(last:sub(-1))
end
local was_there = redis.call('HEXISTS', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2] .. ' ' .. was_there)
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('UNLINK', KEYS[6])
else
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
keep(KEYS[4], KEYS[5], 5)
return was_there

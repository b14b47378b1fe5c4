-- Makes a revision the newest of a name, or deletes the name.
-- KEYS: newest, revisions, outcomes, responses, expiries, decisions
-- ARGV: name, nonce, revision or '', definition, the newest revision that is expected ('' for none,
--   '*' for any); the responses
-- Returns 1 if the name was there, else 0; the same answer again for the same nonce. Returns 2 and
-- writes nothing if another revision is the newest.
local name, nonce, revision, definition = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local last = redis.call('HGET', KEYS[3], name) or ''
if last:sub(1, -3) == nonce then
  redis.call('HSET', KEYS[3], name, last) -- a WAIT after it waits for the change too
  return tonumber(last:sub(-1))
end
if ARGV[5] ~= '*' and ARGV[5] ~= (redis.call('HGET', KEYS[1], name) or '') then return 2 end
local was_there = redis.call('HEXISTS', KEYS[1], name)
redis.call('HSET', KEYS[3], name, nonce .. ' ' .. was_there)
if revision == '' then
  redis.call('HDEL', KEYS[1], name)
  redis.call('UNLINK', KEYS[6])
else
  redis.call('HSET', KEYS[2], revision, definition)
  redis.call('HSET', KEYS[1], name, revision)
end
keep(KEYS[4], KEYS[5], 6)
return was_there

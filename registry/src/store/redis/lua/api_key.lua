-- Keeps an API key, or forgets it.
-- KEYS: keys, their last use, version, the call's outcome
-- ARGV: id, key or '', '1' to change only a key that is there
-- Returns 1 if it was there, else 0; the same answer again for the same call.
local id, key, must_exist = ARGV[1], ARGV[2], ARGV[3] == '1'
local outcome = earlier(KEYS[4])
if outcome then return outcome end
local was_there = remember(KEYS[4], redis.call('HEXISTS', KEYS[1], id))
if must_exist and was_there == 0 then return was_there end
if key == '' then
  redis.call('HDEL', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
else
  redis.call('HSET', KEYS[1], id, key)
end
redis.call('INCR', KEYS[3])
return was_there

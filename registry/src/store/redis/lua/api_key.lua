-- Keeps an API key, or forgets it.
-- KEYS: keys, their last use, version, the call's outcome; the chains
-- ARGV: id, key or '', '1' to change only a key that is there; the chains
-- Returns 1 if it was there, else 0; the same answer again for the same call. Returns 3 and writes
-- nothing if a chain has another end.
local id, key, must_exist = ARGV[1], ARGV[2], ARGV[3] == '1'
local outcome = earlier(KEYS[4])
if outcome then return outcome end
if not follows() then return 3 end
local was_there = redis.call('HEXISTS', KEYS[1], id)
if was_there == 1 or (key ~= '' and not must_exist) then record() end
remember(KEYS[4], was_there)
if must_exist and was_there == 0 then return was_there end
if key == '' then
  redis.call('HDEL', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
else
  redis.call('HSET', KEYS[1], id, key)
end
redis.call('INCR', KEYS[3])
return was_there

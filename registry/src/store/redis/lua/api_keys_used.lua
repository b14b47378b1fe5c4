-- Notes when API keys were last used.
-- KEYS: keys, their last use
-- ARGV: pairs of id and microseconds since 1970
-- Returns the number of notes.
local noted = 0
for i = 1, #ARGV, 2 do
  local last = tonumber(redis.call('HGET', KEYS[2], ARGV[i]) or '0')
  if last < tonumber(ARGV[i + 1]) and redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    noted = noted + 1
  end
end
return noted

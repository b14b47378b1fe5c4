-- Remembers a decision for an agent, or forgets it.
-- KEYS: decisions of the agent
-- ARGV: id, decision or ''
-- Returns 1 if it was there, else 0.
local was_there = redis.call('HEXISTS', KEYS[1], ARGV[1])
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return was_there

-- Remembers a decision for an agent, or forgets it.
-- KEYS: decisions of the agent
-- ARGV: id, decision or ''
-- Returns 1 if it was there, else 0.
local id, decision = ARGV[1], ARGV[2]
local was_there = redis.call('HEXISTS', KEYS[1], id)
if decision == '' then
  redis.call('HDEL', KEYS[1], id)
else
  redis.call('HSET', KEYS[1], id, decision)
end
return was_there

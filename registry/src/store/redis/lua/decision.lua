-- Remembers a decision for an agent, or forgets it.
-- KEYS: decisions of the agent, the call's outcome
-- ARGV: id, decision or ''
-- Returns 1 if it was there, else 0; the same answer again for the same call.
local id, decision = ARGV[1], ARGV[2]
local outcome = earlier(KEYS[2])
if outcome then return outcome end
local was_there = remember(KEYS[2], redis.call('HEXISTS', KEYS[1], id))
if decision == '' then
  redis.call('HDEL', KEYS[1], id)
else
  redis.call('HSET', KEYS[1], id, decision)
end
return was_there

-- Remembers a decision for an agent, or forgets it. One that the operators' audit has must be there.
-- KEYS: decisions of the agent, the call's outcome; the chains
-- ARGV: id, decision or ''; the chains
-- Returns 1 if it was there, else 0; the same answer again for the same call. Returns 3 and writes
-- nothing if a chain has another end.
local id, decision = ARGV[1], ARGV[2]
local outcome = earlier(KEYS[2])
if outcome then return outcome end
if not follows() then return 3 end
local was_there = redis.call('HEXISTS', KEYS[1], id)
if was_there == 0 and chains > 0 then return remember(KEYS[2], 0) end
record()
remember(KEYS[2], was_there)
if decision == '' then
  redis.call('HDEL', KEYS[1], id)
else
  redis.call('HSET', KEYS[1], id, decision)
end
return was_there

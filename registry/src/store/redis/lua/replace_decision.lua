-- Replaces a decision of an agent, if it is still as it was read.
-- KEYS: decisions of the agent
-- ARGV: id, what was read, what replaces it
-- Returns 1, also for a repeat; 0 and writes nothing if another one is there, or none.
local id, read, next_one = ARGV[1], ARGV[2], ARGV[3]
local present = redis.call('HGET', KEYS[1], id)
if present ~= read and present ~= next_one then return 0 end
redis.call('HSET', KEYS[1], id, next_one)
return 1

-- Replaces how far the index of lists has been rebuilt, or which agents are to be indexed anew.
-- KEYS: progress
-- ARGV: the progress that is expected, '' for none; the new one
-- Returns 1, also for a repeat; 0 and writes nothing if there is another one.
local present = redis.call('GET', KEYS[1]) or ''
if present ~= ARGV[1] and present ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1

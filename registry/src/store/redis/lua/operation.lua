-- Writes an operation into its chains; its effect follows.
-- KEYS: the call's outcome; the chains
-- ARGV: the chains
-- Returns 1, also for a repeat of the same call; 3 and writes nothing if a chain has another end.
local outcome = earlier(KEYS[1])
if outcome then return outcome end
if not follows() then return 3 end
record()
return remember(KEYS[1], 1)

-- Removes a blob.
-- KEYS: blob, the call's outcome
-- Returns 1 if it was there, else 0; the same answer again for the same call.
local outcome = earlier(KEYS[2])
if outcome then return outcome end
return remember(KEYS[2], redis.call('UNLINK', KEYS[1]))

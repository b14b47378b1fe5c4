-- Removes a blob.
-- KEYS: blob, the call's outcome, what is counted of its tenant's blobs
-- Returns 1 if it was there, else 0; the same answer again for the same call.
local outcome = earlier(KEYS[2])
if outcome then return outcome end
local counted = redis.call('HGET', KEYS[1], 'counted')
if counted then redis.call('HINCRBY', KEYS[3], 'bytes', 0 - counted) end
return remember(KEYS[2], redis.call('UNLINK', KEYS[1]))

-- Removes a blob. Its names stay: they count again if it is stored again.
-- KEYS: blob, the call's outcome, what is counted of its tenant's blobs, holds, when blobs are due
-- ARGV: id
-- Returns 1 if it was there, else 0; the same answer again for the same call.
local outcome = earlier(KEYS[2])
if outcome then return outcome end
local counted = redis.call('HGET', KEYS[1], 'counted')
if counted then redis.call('HINCRBY', KEYS[3], 'bytes', 0 - counted) end
redis.call('UNLINK', KEYS[4])
redis.call('ZREM', KEYS[5], ARGV[1])
return remember(KEYS[2], redis.call('UNLINK', KEYS[1]))

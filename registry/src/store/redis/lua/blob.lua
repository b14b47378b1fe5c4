-- Stores a blob, and holds it.
-- KEYS: blob, the call's outcome, what is counted of its tenant's blobs, holds, when blobs are due
-- ARGV: media type, size, bytes, id; holder and end of the hold, '' for none
-- Returns 1 if it was not there before, else 0; the same answer again for the same call.
local media_type, size, bytes = ARGV[1], ARGV[2], ARGV[3]
local outcome = earlier(KEYS[2])
if outcome then return outcome end
local holder, until_score, is_due
if ARGV[5] ~= '' then
  holder, until_score, is_due = hold_of(KEYS[4], KEYS[5], ARGV[4], ARGV[5], ARGV[6])
end
local is_new = redis.call('HSETNX', KEYS[1], 'bytes', bytes)
redis.call('HSET', KEYS[1], 'type', media_type, 'size', size)
-- One that was stored before blobs were counted is counted now.
if redis.call('HSETNX', KEYS[1], 'counted', size) == 1 then
  redis.call('HINCRBY', KEYS[3], 'bytes', size)
end
if holder then hold(KEYS[4], KEYS[5], ARGV[4], holder, until_score, is_due) end
return remember(KEYS[2], is_new)

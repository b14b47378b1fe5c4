-- Holds a blob, if it is there.
-- KEYS: blob, its holds, when blobs are due
-- ARGV: id, holder, end of the hold
-- Returns media type and size; nil if it is not there.
local found = redis.call('HMGET', KEYS[1], 'type', 'size')
if not found[1] then return false end
hold(KEYS[2], KEYS[3], ARGV[1], hold_of(KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]))
return found

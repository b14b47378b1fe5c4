-- Stores a blob, or removes it.
-- KEYS: blob
-- ARGV: media type, size, bytes; none of them to remove the blob
-- Returns 1 if it was not there before, or was there to be removed, else 0.
if #ARGV == 0 then return redis.call('UNLINK', KEYS[1]) end
local media_type, size, bytes = ARGV[1], ARGV[2], ARGV[3]
local is_new = redis.call('HSETNX', KEYS[1], 'bytes', bytes)
redis.call('HSET', KEYS[1], 'type', media_type, 'size', size) -- a WAIT after it waits in any case
return is_new

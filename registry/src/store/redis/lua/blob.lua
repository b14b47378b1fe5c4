-- Keeps a blob, or removes it.
-- KEYS: blob
-- ARGV: media type, size, bytes; nothing to remove it
-- Returns 1 if it was not there before, or was there to be removed, else 0.
if #ARGV == 0 then return redis.call('UNLINK', KEYS[1]) end
local new = redis.call('HSETNX', KEYS[1], 'bytes', ARGV[3])
redis.call('HSET', KEYS[1], 'type', ARGV[1], 'size', ARGV[2]) -- a WAIT after it waits in any case
return new

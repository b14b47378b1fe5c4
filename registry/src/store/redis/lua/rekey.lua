-- Replaces a data key that is stored in a field, if it is still the one that is expected.
-- KEYS: a hash
-- ARGV: the field, the value that is expected, the new one; '' for none
-- Returns what the field is after that, '' for nothing. A repeat finds the new value.
local field, expected, new = ARGV[1], ARGV[2], ARGV[3]
local present = redis.call('HGET', KEYS[1], field) or ''
if present == expected then present = new end
-- A WAIT after it waits for what another call has written, too.
if present == '' then redis.call('HDEL', KEYS[1], field)
else redis.call('HSET', KEYS[1], field, present) end
return present

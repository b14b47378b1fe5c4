-- Writes anew what lists show of a conversation, if its journal still ends there.
-- KEYS: conversation, index of lists
-- ARGV: id, seq; then as list says
-- Returns 1; 0 and writes nothing if the journal has moved on.
if redis.call('HGET', KEYS[1], 'seq') ~= ARGV[2] then return 0 end
list(KEYS[2], ARGV[1], redis.call('HGET', KEYS[1], 'listed') or '', 3)
redis.call('HSET', KEYS[1], unpack(fields))
return 1

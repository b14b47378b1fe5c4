-- Writes anew what lists show of a conversation, if its journal still ends there, and an erasure has
-- not put other participants beside the same journal.
-- KEYS: conversation, index of lists
-- ARGV: id, seq, the participants that are stored or ''; then as list says
-- Returns 1; 0 and writes nothing if the journal has moved on, or the participants are others.
local row = redis.call('HMGET', KEYS[1], 'seq', 'participants', 'listed')
if row[1] ~= ARGV[2] or (row[2] or '') ~= ARGV[3] then return 0 end
list(KEYS[2], ARGV[1], row[3] or '', 4)
redis.call('HSET', KEYS[1], unpack(fields))
return 1

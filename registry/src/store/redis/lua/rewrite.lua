-- Replaces events of a journal by others of the same numbers, and what is stored beside it.
-- KEYS: conversation, journal, state, suspensions, index of lists
-- ARGV: node, incarnation, epoch, id, seq; the number of events, and for each its index and the
--   event; the number of open suspensions, and for each its member and entry; then as list says
-- Returns DONE, also for a repeat; FENCED; CONFLICT if the journal ends elsewhere.
local row = redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch', 'seq', 'listed')
if not holds(row) then return 'FENCED' end
if row[4] ~= ARGV[5] then return 'CONFLICT' end
local suspensions = 7 + 2 * ARGV[6]
local listed = suspensions + 1 + 2 * ARGV[suspensions]
for i = 7, suspensions - 1, 2 do redis.call('LSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
for i = suspensions + 1, listed - 1, 2 do redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1]) end
redis.call('UNLINK', KEYS[3])
list(KEYS[5], ARGV[4], row[5] or '', listed)
redis.call('HSET', KEYS[1], unpack(fields))
return 'DONE'

-- Notes which blobs a conversation is about to name: before the blobs know of it, and the commit.
-- KEYS: conversation, its blobs, deletions with names to drop, conversations with blobs
-- ARGV: node, incarnation, epoch of the claim, '' for whoever has written to it; id; the blobs
-- Returns the epoch; nil if the claim is another, or nobody has written to it.
local row = redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch', 'seq')
if ARGV[1] == '' and not row[4] then return false end
if ARGV[1] ~= '' and not holds(row) then return false end
local epoch = row[3] or '0'
for i = 5, #ARGV do redis.call('ZADD', KEYS[2], epoch, ARGV[i]) end
redis.call('ZADD', KEYS[4], 0, ARGV[4])
-- If the first commit never happens, the names are dropped as those of a deleted one.
if not row[4] then redis.call('ZADD', KEYS[3], 0, epoch .. ':' .. ARGV[4]) end
return epoch

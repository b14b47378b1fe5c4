-- Reads which names of a deleted conversation are to be dropped.
-- KEYS: conversation, its blobs, the dropped ones
-- ARGV: '1' if nobody can be about to write the first commit any more
-- Returns each blob and the epoch of its name; nil if somebody may still write the first commit.
local row = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
local named, dropped = redis.call('ZCARD', KEYS[2]), redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
if #dropped > 0 or row[2] or named == 0 then return dropped end
if row[1] or ARGV[1] ~= '1' then return false end
redis.call('RENAME', KEYS[2], KEYS[3])
return redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')

-- Ends the holds on a blob that have run out, and one that is released, and removes the blob if it is
-- not named or held then.
-- KEYS: when blobs are due, what is counted of the tenant's blobs, blob, names, holds, the outcome
-- ARGV: id, now, holder that is released or ''
-- Returns 1 if it removed the blob, else 0; the same answer again for the same call.
local outcome = earlier(KEYS[6])
if outcome then return outcome end
local ended = redis.call('ZRANGE', KEYS[5], '-inf', ARGV[2], 'BYSCORE')
if ARGV[3] ~= '' then table.insert(ended, ARGV[3]) end
for _, holder in ipairs(ended) do redis.call('ZREM', KEYS[5], holder) end
local removed = remove_unused(KEYS[3], KEYS[4], KEYS[5], KEYS[1], KEYS[2], ARGV[1], '1')
local next = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
if next[2] then redis.call('ZADD', KEYS[1], next[2], ARGV[1])
else redis.call('ZREM', KEYS[1], ARGV[1]) end
return remember(KEYS[6], removed and 1 or 0)

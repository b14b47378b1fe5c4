-- Deletes a conversation with all its index entries.
-- KEYS: conversation, journal, alarms, active, ids, state, responses, expiries, suspensions, open,
--   floor, deleted, the audit's entries and expiries, queues, the index of lists, its blobs, those to
--   drop, deletions with blobs to drop, conversations with blobs; those of what is owed
-- ARGV: node, incarnation, epoch, nonce, id, for how many seconds the nonce is kept; the responses;
--   what is owed, as write_owed says
-- Returns DONE, NAMED if it named blobs, or FENCED; the same again while the nonce is kept.
local epoch, nonce, id, nonce_seconds = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if redis.call('GET', KEYS[12]) == nonce then
  -- A WAIT after it waits for the deletion, too.
  redis.call('SET', KEYS[12], nonce, 'EX', nonce_seconds)
  return redis.call('ZCARD', KEYS[18]) > 0 and 'NAMED' or 'DONE'
end
if not holds(redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch')) then return 'FENCED' end
local has_named = redis.call('ZCARD', KEYS[17]) > 0
redis.call('SET', KEYS[12], nonce, 'EX', nonce_seconds)
raise(KEYS[11], epoch)
for _, member in ipairs(redis.call('HKEYS', KEYS[9])) do redis.call('ZREM', KEYS[10], member) end
local queued = redis.call('HGET', KEYS[1], 'queued') or ''
for entry in queued:gmatch('[^\n]+') do redis.call('ZREM', KEYS[15], entry) end
relist(KEYS[16], id, redis.call('HGET', KEYS[1], 'listed') or '', '')
for i = 3, 5 do redis.call('ZREM', KEYS[i], id) end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[13], KEYS[14])
if has_named then
  redis.call('RENAME', KEYS[17], KEYS[18])
  redis.call('ZADD', KEYS[19], 0, epoch .. ':' .. id)
  redis.call('ZREM', KEYS[20], id)
end
write_owed(21, keep(KEYS[7], KEYS[8], 7))
return has_named and 'NAMED' or 'DONE'

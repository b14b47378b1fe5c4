-- Deletes a conversation with all its indexes. What needs memory comes first.
-- KEYS: conversation, journal, alarms, active, ids, state, answers, expiries, suspensions, open,
--   floor, deleted, the audit's entries and expiries
-- ARGV: node, incarnation, epoch, nonce, id, for how many seconds the nonce is kept; the answers
-- Returns DONE or FENCED; DONE again while the nonce is kept.
if redis.call('GET', KEYS[12]) == ARGV[4] then
  redis.call('SET', KEYS[12], ARGV[4], 'EX', ARGV[6]) -- a WAIT after it waits for the deletion too
  return 'DONE'
end
if not holds(redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch')) then return 'FENCED' end
redis.call('SET', KEYS[12], ARGV[4], 'EX', ARGV[6])
raise(KEYS[11], ARGV[3])
for _, member in ipairs(redis.call('HKEYS', KEYS[9])) do redis.call('ZREM', KEYS[10], member) end
for i = 3, 5 do redis.call('ZREM', KEYS[i], ARGV[5]) end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[13], KEYS[14])
keep(KEYS[7], KEYS[8], 7)
return 'DONE'

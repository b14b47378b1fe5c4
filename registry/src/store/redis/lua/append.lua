-- Appends one commit. What is read is read first, and then the journal is pushed: a server that
-- refuses a read, or has no memory, refuses before anything is written.
-- KEYS: conversation, journal, alarms, active; then those of each part
-- ARGV: node, incarnation, epoch, nonce, seq before, seq after, head, alarm or '', its score,
--   active or '', id, parts, number of events; the events; then each part, in this order:
--   r, responses (responses, expiries): now; the responses
--   n, the conversation is new (ids): agent
--   l, what lists show of it (index): as list says; or a, it was active (index): as touch says
--   t, the first that is known of its tenant, perhaps (tenants): tenant
--   s, a state to cache (state): the state
--   d, deaths to forget
--   k, a data key: the key
--   o, inbox entries (suspensions, open): numbers of closed and opened; the closed; key and entry of
--     each opened
--   q, calls that wait in queues (queues): number of all that wait now; their entries
--   w, what is owed to webhooks (index, counts, and of each: due, since, queue): as write_owed says
--   u, usage (its day): row, the row if there is no room, numbers, most rows, seconds that it is kept
-- Returns DONE, FENCED or CONFLICT; DONE again when this very commit was the last. FENCED, too, if a
--   response has the key of one that is kept: the caller has read a server that was behind.
local nonce, seq_before, alarm, active, id = ARGV[4], ARGV[5], ARGV[8], ARGV[10], ARGV[11]
local row = redis.call('HMGET', KEYS[1],
  'node', 'incarnation', 'epoch', 'seq', 'nonce', 'alarm', 'active', 'queued', 'listed')
if not holds(row) then return 'FENCED' end
if row[5] == nonce then
  redis.call('HSET', KEYS[1], 'nonce', nonce) -- a WAIT after it waits for the commit too
  return 'DONE'
end
if (row[4] or '0') ~= seq_before then return 'CONFLICT' end
local at, parts, day, sums, is_new_day = 14 + ARGV[13], ARGV[12], KEYS[#KEYS]
if ARGV[13] ~= '0' and parts:find('r') and is_answered(KEYS[6], at) then return 'FENCED' end
local listed = seq_before ~= '0' and (row[9] or '')
if parts:find('u') then sums, is_new_day = sums_with(day, #ARGV - 4) end
each('RPUSH', KEYS[2], 14, at - 1)
index(3, 'alarm', row[6], alarm, ARGV[9], id)
index(4, 'active', row[7], active, 0, id)
if parts ~= '' then write_parts(parts, 5, at, id, row[8], listed) end
redis.call('HSET', KEYS[1], 'seq', ARGV[6], 'nonce', nonce, 'head', ARGV[7], unpack(fields))
if sums then count(day, sums, is_new_day, ARGV[#ARGV]) end
return 'DONE'

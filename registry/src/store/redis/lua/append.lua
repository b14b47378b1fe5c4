-- Appends one commit. The journal is pushed first: a server without memory refuses that, and then
-- nothing is written.
-- KEYS: conversation, journal, alarms, active, ids, state, responses, expiries, suspensions, open
-- ARGV: node, incarnation, epoch, nonce, seq before, seq after, agent, head, alarm or '', its
--   score, active or '', id, metadata or '', state or '', '1' to forget deaths or '', now,
--   number of events, of closed, of opened; the events; the closed; key and entry of each opened; the responses
-- Returns DONE, FENCED or CONFLICT; DONE again when this very commit was the last.
local nonce, seq_before, alarm, active, id = ARGV[4], ARGV[5], ARGV[9], ARGV[11], ARGV[12]
local function index(key, was, is, score)
  if was == is then return end
  if is ~= '' then redis.call('ZADD', key, score, id)
  elseif was then redis.call('ZREM', key, id) end
end
local function each(command, key, from, to) -- Lua's stack takes some thousands
  for i = from, to, 1000 do
    redis.call(command, key, unpack(ARGV, i, math.min(i + 999, to)))
  end
end
local row = redis.call('HMGET', KEYS[1],
  'node', 'incarnation', 'epoch', 'seq', 'nonce', 'alarm', 'active')
if not holds(row) then return 'FENCED' end
if row[5] == nonce then
  redis.call('HSET', KEYS[1], 'nonce', nonce) -- a WAIT after it waits for the commit too
  return 'DONE'
end
if (row[4] or '0') ~= seq_before then return 'CONFLICT' end
local events, closed, opened = 20, 20 + ARGV[17], 20 + ARGV[17] + ARGV[18]
local responses = opened + 2 * ARGV[19]
each('RPUSH', KEYS[2], events, closed - 1)
redis.call('HSET', KEYS[1], 'seq', ARGV[6], 'nonce', nonce, 'agent', ARGV[7],
  'head', ARGV[8], 'alarm', alarm, 'active', active)
if not row[4] then redis.call('ZADD', KEYS[5], 0, id) end
if ARGV[13] ~= '' then redis.call('HSET', KEYS[1], 'metadata', ARGV[13]) end
if ARGV[14] ~= '' then redis.call('SET', KEYS[6], ARGV[14]) end
if ARGV[15] ~= '' then redis.call('HDEL', KEYS[1], 'deaths') end
index(KEYS[3], row[6], alarm, ARGV[10])
index(KEYS[4], row[7], active, 0)
each('ZREM', KEYS[10], closed, opened - 1)
each('HDEL', KEYS[9], closed, opened - 1)
for i = opened, responses - 1, 2 do redis.call('ZADD', KEYS[10], 0, ARGV[i]) end
for i = opened, responses - 1, 2 do redis.call('HSET', KEYS[9], ARGV[i], ARGV[i + 1]) end
if ARGV[responses] == '0' then return 'DONE' end
prune(KEYS[7], KEYS[8], ARGV[16])
keep(KEYS[7], KEYS[8], responses)
return 'DONE'

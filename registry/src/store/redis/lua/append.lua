-- Appends one commit. The journal is pushed first: full memory refuses that, and nothing is written.
-- KEYS: conversation, journal, alarms, active, ids, state, answers, expiries, suspensions, open
-- ARGV: node, incarnation, epoch, nonce, seq before, seq after, agent, head, alarm or '', its score,
--   active or '', id, metadata or '', state or '', now, number of events, of closed, of opened; the
--   events; the closed; key and entry of each opened; the answers
-- Returns DONE, FENCED or CONFLICT; DONE again when this very commit was the last.
local function mark(index, was, is, score)
  if was == is then return end
  if is ~= '' then redis.call('ZADD', index, score, ARGV[12])
  elseif was then redis.call('ZREM', index, ARGV[12]) end
end
local function each(command, key, from, to) -- Lua's stack takes some thousands
  for i = from, to, 1000 do
    redis.call(command, key, unpack(ARGV, i, math.min(i + 999, to)))
  end
end
local at = redis.call('HMGET', KEYS[1],
  'node', 'incarnation', 'epoch', 'seq', 'nonce', 'alarm', 'active')
if not holds(at) then return 'FENCED' end
if at[5] == ARGV[4] then
  redis.call('HSET', KEYS[1], 'nonce', ARGV[4]) -- a WAIT after it waits for the commit too
  return 'DONE'
end
if (at[4] or '0') ~= ARGV[5] then return 'CONFLICT' end
local events, closed, opened = 19, 19 + ARGV[16], 19 + ARGV[16] + ARGV[17]
local answers = opened + 2 * ARGV[18]
each('RPUSH', KEYS[2], events, closed - 1)
redis.call('HSET', KEYS[1], 'seq', ARGV[6], 'nonce', ARGV[4], 'agent', ARGV[7],
  'head', ARGV[8], 'alarm', ARGV[9], 'active', ARGV[11])
if not at[4] then redis.call('ZADD', KEYS[5], 0, ARGV[12]) end
if ARGV[13] ~= '' then redis.call('HSET', KEYS[1], 'metadata', ARGV[13]) end
if ARGV[14] ~= '' then redis.call('SET', KEYS[6], ARGV[14]) end
mark(KEYS[3], at[6], ARGV[9], ARGV[10])
mark(KEYS[4], at[7], ARGV[11], 0)
each('ZREM', KEYS[10], closed, opened - 1)
each('HDEL', KEYS[9], closed, opened - 1)
for i = opened, answers - 1, 2 do redis.call('ZADD', KEYS[10], 0, ARGV[i]) end
for i = opened, answers - 1, 2 do redis.call('HSET', KEYS[9], ARGV[i], ARGV[i + 1]) end
if ARGV[answers] == '0' then return 'DONE' end
prune(KEYS[7], KEYS[8], ARGV[15])
keep(KEYS[7], KEYS[8], answers)
return 'DONE'

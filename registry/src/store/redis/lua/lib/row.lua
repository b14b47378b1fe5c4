-- Library in front of the scripts that append, after that of claims: refuses the commit unless its
-- claim holds and the conversation is as the node knows it. KEYS and ARGV as append says.
-- row: node, incarnation, epoch, seq, nonce and entry in lists.
local nonce = ARGV[4]
local row = redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch', 'seq', 'nonce', 'listed')
if not holds(row) then return 'FENCED' end
if row[5] == nonce then
  redis.call('HSET', KEYS[1], 'nonce', nonce) -- a WAIT after it waits for the commit too
  return 'DONE'
end
if (row[4] or '0') ~= ARGV[5] then return 'CONFLICT' end
if ARGV[6] ~= '*' and ARGV[6] ~= (row[6] or '') then return 'RELISTED' end
local outcome = 'DONE'

-- Library in front of the script that appends, in place of those of claims and rows, for the first
-- commit of a conversation that nobody holds and that does not exist: claims it. KEYS and ARGV as append
-- says, but for the floor of epochs, whose key stands before that of usage, and the epoch, which is the
-- value of the first field and worked out here.
local row = redis.call('HMGET', KEYS[1], 'node', 'epoch', 'seq', 'nonce')
if row[4] == ARGV[4] then
  redis.call('HSET', KEYS[1], 'nonce', ARGV[4]) -- a WAIT after it waits for the commit too
  return row[2]
end
if row[1] or row[3] then return 'CONFLICT' end
local floor = KEYS[ARGV[10] == 'u' and #KEYS - 1 or #KEYS]
local outcome = string.format('%.0f', (redis.call('GET', floor) or '0') + 1)
ARGV[fields + 1] = outcome

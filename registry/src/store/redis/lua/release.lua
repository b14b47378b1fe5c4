-- Gives a claim up, if it is the present one; no later claim gets its epoch.
-- KEYS: conversation, floor
-- ARGV: node, incarnation, epoch
-- Returns DONE, whatever it found.
local epoch = ARGV[3]
local row = redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch', 'seq')
if not holds(row) then return 'DONE' end
local has_journal = row[4]
if has_journal then
  redis.call('HDEL', KEYS[1], 'node', 'incarnation')
else
  raise(KEYS[2], epoch)
  redis.call('DEL', KEYS[1])
end
return 'DONE'

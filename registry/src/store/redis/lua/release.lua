-- Gives a claim up, if it is the present one; its epoch stays known.
-- KEYS: conversation, floor
-- ARGV: node, incarnation, epoch
-- Returns DONE, whatever it found.
local at = redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch', 'seq')
if not holds(at) then return 'DONE' end
if at[4] then
  redis.call('HDEL', KEYS[1], 'node', 'incarnation')
else
  raise(KEYS[2], ARGV[3])
  redis.call('DEL', KEYS[1])
end
return 'DONE'

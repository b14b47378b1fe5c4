-- Claims a conversation that nobody holds, or that a dead holder holds.
-- KEYS: conversation, floor
-- ARGV: node and incarnation of the claimant, node and incarnation of the dead holder or ''
-- Returns node, incarnation and epoch of the claim after the call, whoever won it.
return claim(redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch'))

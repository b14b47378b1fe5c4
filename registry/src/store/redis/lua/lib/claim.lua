-- Library in front of the scripts that claim.
-- claim: claims a conversation that nobody holds, or that the dead holder holds. `held` is the node,
--   the incarnation and the epoch of the present claim.
-- KEYS 1 and 2: conversation, floor
-- ARGV 1 to 4: node and incarnation of the claimant, node and incarnation of the dead holder or ''
-- Returns node, incarnation and epoch of the claim after the call, whoever won it.
local function claim(held)
  local node, incarnation, dead_node, dead_incarnation = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  if held[1] and not (held[1] == dead_node and held[2] == dead_incarnation) then return {held[1], held[2], held[3]} end
  -- The floor is above the claims of a conversation that is not there any more.
  local last = held[3] or redis.call('GET', KEYS[2]) or '0'
  local epoch = string.format('%.0f', last + 1)
  redis.call('HSET', KEYS[1], 'node', node, 'incarnation', incarnation, 'epoch', epoch)
  return {node, incarnation, epoch}
end


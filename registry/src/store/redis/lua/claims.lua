-- claim: claims a conversation that nobody holds, or the dead one.
-- KEYS 1 and 2: conversation, floor
-- ARGV 1 to 4: node and incarnation of the claimant, node and incarnation of the dead or ''
-- Returns node, incarnation and epoch of the holding after the call.
local function claim()
  local at = redis.call('HMGET', KEYS[1], 'node', 'incarnation', 'epoch')
  if at[1] and not (at[1] == ARGV[3] and at[2] == ARGV[4]) then return at end
  local written, floor = tonumber(at[3] or '0'), tonumber(redis.call('GET', KEYS[2]) or '0')
  local epoch = string.format('%.0f', math.max(written, floor) + 1)
  redis.call('HSET', KEYS[1], 'node', ARGV[1], 'incarnation', ARGV[2], 'epoch', epoch)
  return {ARGV[1], ARGV[2], epoch}
end


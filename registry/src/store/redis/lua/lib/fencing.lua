-- Library in front of the scripts that write under a claim.
-- holds: whether node, incarnation and epoch, as read from a conversation, equal ARGV 1 to 3.
local function holds(claim)
  return claim[1] == ARGV[1] and claim[2] == ARGV[2] and claim[3] == ARGV[3]
end


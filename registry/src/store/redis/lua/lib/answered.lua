-- Library in front of the script that appends: what was answered already.
-- is_answered: whether one of the responses that ARGV lists from index `at` on has a key that is kept,
--   and has not expired by then. Reads only. ARGV from there: now, then as keep says.
local function is_answered(expiries, at)
  local now, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  for i = at + 3, at + 2 + 3 * count, 3 do
    local expiry = redis.call('ZSCORE', expiries, ARGV[i])
    if expiry and (expiry == 'inf' or tonumber(expiry) > now) then return true end
  end
  return false
end


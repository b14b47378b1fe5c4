-- Keeps an answer, unless one is kept under its key that has not expired.
-- KEYS: answers, expiries
-- ARGV: now, nonce; the answer, whose value begins with the nonce
-- Returns 1 if it is kept, also by an earlier try of the same call, else 0.
local expiry = redis.call('ZSCORE', KEYS[2], ARGV[5])
if expiry and tonumber(expiry) > tonumber(ARGV[1]) then
  local kept = redis.call('HGET', KEYS[1], ARGV[5])
  if not kept or kept:sub(1, #ARGV[2] + 1) ~= ARGV[2] .. ' ' then return 0 end
end
prune(KEYS[1], KEYS[2], ARGV[1])
keep(KEYS[1], KEYS[2], 3)
return 1

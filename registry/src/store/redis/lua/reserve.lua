-- Keeps a response, unless one that has not expired is kept under its key.
-- KEYS: responses, expiries
-- ARGV: now, nonce; the response, whose value begins with the nonce
-- Returns 1 if it is kept, also by an earlier attempt of the same call, else 0.
local now, nonce, key = ARGV[1], ARGV[2], ARGV[5]
local expiry = redis.call('ZSCORE', KEYS[2], key)
if expiry and tonumber(expiry) > tonumber(now) then
  local stored = redis.call('HGET', KEYS[1], key)
  if not stored then return 0 end
  if stored:sub(1, #nonce + 1) ~= nonce .. ' ' then
    redis.call('HSET', KEYS[1], key, stored) -- a WAIT after it waits for that one too
    return 0
  end
end
prune(KEYS[1], KEYS[2], now)
keep(KEYS[1], KEYS[2], 3)
return 1

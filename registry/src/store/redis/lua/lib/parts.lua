-- Library in front of the scripts that append what few commits have, after that of rows, responses
-- and notices: responses to keep, whose keys are the third and the fourth, and what is owed to
-- webhooks, whose keys follow. Refuses a commit if one of its responses has the key of one that is
-- kept and has not expired by now: the caller has read a server that was behind.
-- ARGV after the commands: now; the responses, as keep says; what is owed, as write_owed says
local now = parts
for i = now + 3, now + 2 + 3 * ARGV[now + 1], 3 do
  local expiry = redis.call('ZSCORE', KEYS[4], ARGV[i])
  if expiry and (expiry == 'inf' or tonumber(expiry) > tonumber(ARGV[now])) then return 'FENCED' end
end

-- write_parts: writes these parts.
local function write_parts()
  if ARGV[now + 1] ~= '0' then prune(KEYS[3], KEYS[4], ARGV[now]) end
  write_owed(5, keep(KEYS[3], KEYS[4], now + 1))
end


-- Library in front of the scripts whose effect the operators' audit has. Their last KEYS are, for
-- each chain, its entries and its end; their last ARGV, for each chain, seq, the end before, the
-- end after and the entry, then the maximum number of entries and the number of chains, 0 for none.
local chains = tonumber(ARGV[#ARGV])
local function chain(number)
  local key, arg = #KEYS - 2 * (chains - number), #ARGV - 2 - 4 * (chains - number)
  return KEYS[key - 1], KEYS[key], arg - 3
end

-- follows: whether the entries follow the ends of their chains.
local function follows()
  for number = 1, chains do
    local _, last, arg = chain(number)
    if (redis.call('GET', last) or '') ~= ARGV[arg + 1] then return false end
  end
  return true
end

-- record: writes the entries, before anything else is written: what cannot be recorded is not done.
local function record()
  for number = 1, chains do
    local entries, last, arg = chain(number)
    redis.call('ZADD', entries, ARGV[arg], ARGV[arg + 3])
    redis.call('SET', last, ARGV[arg + 2])
    redis.call('ZREMRANGEBYRANK', entries, 0, -1 - ARGV[#ARGV - 1])
  end
end


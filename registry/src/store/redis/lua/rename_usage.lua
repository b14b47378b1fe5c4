-- Gives the rows of an owner in a day's usage to another name.
-- KEYS: the usage of the day
-- ARGV: what the names of those rows end with; what takes its place
-- Returns how many rows there were: 0 for a repeat.
local was, is, rows = ARGV[1], ARGV[2], redis.call('HGETALL', KEYS[1])
local counted, found = {}, {}
for i = 1, #rows, 2 do
  counted[rows[i]] = rows[i + 1]
  if rows[i]:sub(-#was) == was then found[#found + 1] = rows[i] end
end
for _, row in ipairs(found) do
  local name = row:sub(1, -#was - 1) .. is
  redis.call('HSET', KEYS[1], name, add(counted[name], numbers(counted[row])))
  redis.call('HDEL', KEYS[1], row)
end
return #found

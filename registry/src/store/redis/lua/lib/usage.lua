-- Library in front of the script that appends: usage.
-- add: the numbers of a row, '2 1', and those that are added to them, '1 1 3', as text. A row of a
--   newer program may have more numbers, which stay.
local function add(row, added)
  local result, next_number = {}, (row or ''):gmatch('%d+')
  for more in added:gmatch('%d+') do
    table.insert(result, string.format('%.0f', (next_number() or 0) + more))
  end
  for number in next_number do table.insert(result, number) end
  return table.concat(result, ' ')
end

-- sums_with: what a day's row and its row without a name, which has the sums of all rows, are with the
--   numbers that begin at index `at`, as arguments of HSET, and whether the day is new. Reads only, so
--   that a server that refuses a read does so before anything is written. ARGV from there: the row, the
--   row that is taken if the day has no room for a new one, the numbers, how many rows have room.
local function sums_with(day, at)
  local row, instead, added, most = unpack(ARGV, at, at + 3)
  local found = redis.call('HMGET', day, '', row)
  if not found[2] and found[1] and redis.call('HLEN', day) > tonumber(most) then
    row = instead
    found[2] = redis.call('HGET', day, row)
  end
  return {'', add(found[1], added), row, add(found[2], added)}, not found[1]
end

-- count: writes these sums. A new day is kept for this number of seconds.
local function count(day, sums, is_new, seconds)
  redis.call('HSET', day, unpack(sums))
  if is_new then redis.call('EXPIRE', day, seconds) end
end

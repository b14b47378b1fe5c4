-- Library in front of the script that appends: usage.
-- sums: the numbers of a row, '2 1', and those that are added to them, '1 1 3', as text. A row of a
--   newer program may have more numbers, which stay.
local function sums(row, added)
  local result, next_number = {}, (row or ''):gmatch('%d+')
  for more in added:gmatch('%d+') do
    table.insert(result, string.format('%.0f', (next_number() or 0) + more))
  end
  for number in next_number do table.insert(result, number) end
  return table.concat(result, ' ')
end

-- count: adds the numbers that begin at index `at` to a row of the day, and to the row without a name,
--   which has the sums of all rows. ARGV from there: the row, the row that is taken if the day has no
--   room for a new one, the numbers, how many rows have room, for how many seconds the day is kept.
local function count(day, at)
  local row, instead, added, most, seconds = unpack(ARGV, at, at + 4)
  local found = redis.call('HMGET', day, '', row)
  if not found[2] and found[1] and redis.call('HLEN', day) > tonumber(most) then
    row = instead
    found[2] = redis.call('HGET', day, row)
  end
  redis.call('HSET', day, '', sums(found[1], added), row, sums(found[2], added))
  if not found[1] then redis.call('EXPIRE', day, seconds) end
end


-- Library in front of the script that appends: usage.
-- numbers: those of a row, as text, and what a newer program has after them; nothing is all zeros.
local function numbers(row)
  return {(row or '0 0 0 0 0 0'):match('^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')}
end

-- add: a row with these numbers added. Most are zero, and text is dear to make of a number.
local function add(row, added)
  local sums = numbers(row)
  for i = 1, 6 do
    if added[i] ~= '0' or not sums[i] then
      sums[i] = string.format('%.0f', (sums[i] or 0) + (added[i] or 0))
    end
  end
  return table.concat(sums, ' ', 1, 6) .. (sums[7] or '')
end

-- sums_with: what a day's row and its row without a name, which has the sums of all rows, are with the
--   numbers that begin at index `at`, as arguments of HSET, and whether the day is new. Reads only, so
--   that a server that refuses a read does so before anything is written. ARGV from there: the row, the
--   row that is taken if the day has no room for a new one, the numbers, how many rows have room.
local function sums_with(day, at)
  local row, instead, added, most = ARGV[at], ARGV[at + 1], numbers(ARGV[at + 2]), ARGV[at + 3]
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

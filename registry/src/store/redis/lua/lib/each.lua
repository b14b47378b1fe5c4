-- each: calls a command with the arguments from `from` to `to`; Lua's stack takes some thousands.
local function each(command, key, from, to)
  for i = from, to, 1000 do
    redis.call(command, key, unpack(ARGV, i, math.min(i + 999, to)))
  end
end


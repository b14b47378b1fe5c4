-- write_parts: most commits have none of the parts that few have.
local function write_parts() end


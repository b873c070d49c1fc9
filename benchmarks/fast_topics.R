# Poisson NMF of R's fastTopics, for benchmarks/peer_fast_topics.py.
#
#   Rscript benchmarks/fast_topics.R FOLDER
#
# FOLDER has settings.csv (n, m, r, nonzeros, threads, seconds, extrapolate), X by columns in p.bin,
# i.bin and x.bin, and the start in F.bin (m x r) and L.bin (n x r), by columns. Writes points.csv
# (seconds since the call, iteration, divergence), memory.csv (bytes of the process with X loaded and
# at its peak), and the last factors over the start.

library(Matrix)
library(fastTopics)

folder <- commandArgs(trailingOnly = TRUE)[1]
place <- function(name) file.path(folder, name)
settings <- as.list(read.csv(place("settings.csv")))
integers <- function(name, n) readBin(place(name), "integer", n, size = 4)
numbers <- function(name, n) readBin(place(name), "double", n, size = 8)
memory <- function(field) {
  lines <- readLines("/proc/self/status")
  1024 * as.numeric(gsub("[^0-9]", "", grep(paste0("^", field), lines, value = TRUE)))
}

X <- with(settings, new("dgCMatrix",
  Dim = as.integer(c(n, m)), p = integers("p.bin", m + 1),
  i = integers("i.bin", nonzeros), x = numbers("x.bin", nonzeros)
))
F <- with(settings, matrix(numbers("F.bin", m * r), m, r))
L <- with(settings, matrix(numbers("L.bin", n * r), n, r))
control <- list(nc = settings$threads, extrapolate = settings$extrapolate > 0)

# Once on tiny data, for first allocations and threads.
tiny <- simulate_count_data(20, 30, k = 3, sparse = TRUE)$X
invisible(fit_poisson_nmf(tiny, k = 3, numiter = 2, control = control, verbose = "none"))
invisible(gc())
try(suppressWarnings(writeLines("5", "/proc/self/clear_refs")), silent = TRUE)  # resets the peak
before <- memory("VmRSS")

# Calls of a few iterations each, until the time is over; each goes on where the last one ended. The
# divergence of the factors after a call is not timed: with extrapolation, the deviance in the progress
# is not quite that of the factors. One call ends at 100 iterations, the default of fastTopics.
divergence <- function(fit) sum(deviance_poisson_nmf(X, fit)) / 2
begin <- proc.time()[["elapsed"]]
fit <- init_poisson_nmf(X, F = F, L = L, control = control, verbose = "none")
elapsed <- proc.time()[["elapsed"]] - begin
points <- data.frame()
done <- 0
repeat {
  left <- if (done > 0) ceiling((settings$seconds - elapsed) * done / elapsed) else 1
  step <- min(20, max(1, done %/% 3), left, if (done < 100) 100 - done)
  begin <- proc.time()[["elapsed"]]
  fit <- fit_poisson_nmf(X, fit0 = fit, numiter = step, control = control, verbose = "none")
  elapsed <- elapsed + proc.time()[["elapsed"]] - begin
  done <- done + step
  points <- rbind(points, data.frame(elapsed, done, divergence(fit)))
  if (elapsed >= settings$seconds) break
}

write.csv(points, place("points.csv"), row.names = FALSE)
write.csv(data.frame(before = before, peak = memory("VmHWM")), place("memory.csv"), row.names = FALSE)
writeBin(as.vector(fit$F), place("F.bin"))
writeBin(as.vector(fit$L), place("L.bin"))

//! The clients that ask while the store is disturbed, in threads or in processes of their own.

use std::ffi::OsString;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::case::Failure;
use crate::fault::Site;
use crate::history::{Call, History};
use crate::subject::Workers;
use crate::worker::Worker;
use crate::workload::{Plan, Stop};

/// How long the drivers' own tasks may go on when a client is done.
const LINGER: Duration = Duration::from_millis(100);

/// Clients that are asking.
pub(crate) struct Load {
    plan: Plan,
    runners: Runners,
}

enum Runners {
    Threads(Stop, Vec<JoinHandle<Result<Vec<Call>, Failure>>>),
    Processes(Vec<Worker>, tempfile::TempDir),
}

impl Load {
    /// Begins with a thread for each URL, each with a runtime and a client of its own. Returns when all have their client.
    pub(crate) fn threads(site: &Site, plan: Plan, urls: &[String]) -> Result<Self, Failure> {
        let (stop, barrier) = (Stop::default(), Arc::new(Barrier::new(urls.len() + 1)));
        let mut threads = Vec::new();
        for (process, url) in (0_u32..).zip(urls.iter().cloned()) {
            let (site, plan, stop, barrier) = (site.clone(), plan.clone(), stop.clone(), Arc::clone(&barrier));
            let thread = std::thread::Builder::new().name(format!("client-{process}")).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let client = match &runtime {
                    Ok(runtime) => runtime.block_on(site.connect(url)).map_err(Failure::from),
                    Err(error) => Err(Failure::new(format!("no runtime: {error}"))),
                };
                // Also without a client: the others wait for all to be there.
                barrier.wait();
                let runtime = runtime?;
                let calls = runtime.block_on(plan.run_process(process, client?, &stop, &None));
                runtime.shutdown_timeout(LINGER);
                calls
            })?;
            threads.push(thread);
        }
        barrier.wait();
        Ok(Self { plan, runners: Runners::Threads(stop, threads) })
    }

    /// Begins with a process for each URL. Returns when all have their client, and were told to begin.
    pub(crate) fn processes(site: &Site, plan: Plan, urls: &[String]) -> Result<Self, Failure> {
        Self::processes_in(site, plan, urls, &[])
    }

    /// The same, each process with these variables in its environment.
    pub(crate) fn processes_in(
        site: &Site,
        plan: Plan,
        urls: &[String],
        envs: &[Vec<(OsString, OsString)>],
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let (mut workers, mut envs) = (Vec::new(), envs.iter());
        for (process, url) in (0_u32..).zip(urls) {
            let env = envs.next().cloned().unwrap_or_default();
            let means = Workers { url: url.clone(), args: site.workers().to_vec(), env };
            workers.push(Worker::start(&plan, &means, process, folder.path(), false)?);
        }
        workers.iter_mut().try_for_each(Worker::ready)?;
        workers.iter_mut().try_for_each(Worker::go)?;
        Ok(Self { plan, runners: Runners::Processes(workers, folder) })
    }

    /// Stops a process where it stands, or lets it go on.
    pub(crate) fn stand_still(&self, process: usize, still: bool) -> Result<(), Failure> {
        match &self.runners {
            Runners::Processes(workers, _) => {
                workers.get(process).ok_or_else(|| Failure::new("there is no such process"))?.stand_still(still)
            }
            Runners::Threads(..) => Err(Failure::new("threads can't be stopped one by one")),
        }
    }

    pub(crate) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Ends all clients after the calls that they are in, and tells what they saw.
    pub(crate) fn finish(mut self) -> Result<History, Failure> {
        match &mut self.runners {
            Runners::Threads(stop, _) => stop.stop(),
            Runners::Processes(workers, _) => workers.iter_mut().for_each(Worker::stop),
        }
        self.wait()
    }

    /// Waits until all clients have made all their calls, and tells what they saw.
    pub(crate) fn wait(self) -> Result<History, Failure> {
        let mut history = self.plan.history()?;
        match self.runners {
            Runners::Threads(_, threads) => {
                for thread in threads {
                    history.calls.append(&mut thread.join().map_err(|_| Failure::new("a client panicked"))??);
                }
            }
            Runners::Processes(mut workers, folder) => {
                for worker in &mut workers {
                    history.calls.append(&mut worker.calls()?);
                }
                drop(workers);
                folder.close()?;
            }
        }
        if history.calls.is_empty() {
            return Err(Failure::new("no call was made"));
        }
        Ok(history)
    }
}

/// One process of a plan, which waits to be told to begin.
pub(crate) fn worker(
    site: &Site,
    plan: &Plan,
    process: u32,
    url: &str,
    folder: &std::path::Path,
    journal: bool,
) -> Result<Worker, Failure> {
    let workers = Workers { url: url.to_owned(), args: site.workers().to_vec(), env: Vec::new() };
    Worker::start(plan, &workers, process, folder, journal)
}
